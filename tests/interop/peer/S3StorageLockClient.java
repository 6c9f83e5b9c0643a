package org.apache.hudi.aws.transaction.lock;

import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.client.builder.AwsClientBuilder;
import com.amazonaws.services.s3.AmazonS3;
import com.amazonaws.services.s3.AmazonS3ClientBuilder;
import com.amazonaws.services.s3.model.AmazonS3Exception;
import com.amazonaws.services.s3.model.ObjectMetadata;
import com.amazonaws.services.s3.model.PutObjectRequest;
import com.amazonaws.services.s3.model.S3Object;
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;

/**
 * Two requests to S3 for Hudi's storage-based lock provider, which looks for them under this name.
 *
 * The provider is taken from Hudi's bundle. Its own S3 client is in hudi-aws, and is not tested.
 * Server and keys come from the environment. In the Java that Spark's own compiler understands.
 */
public class S3StorageLockClient implements StorageLockClient {
  private final AmazonS3 client;
  private final String uri;

  public S3StorageLockClient(String owner, String uri, Properties properties) {
    AmazonS3ClientBuilder builder = AmazonS3ClientBuilder.standard();
    builder.setEndpointConfiguration(new AwsClientBuilder.EndpointConfiguration(
        System.getenv("AWS_ENDPOINT_URL"), System.getenv("AWS_REGION")));
    builder.setCredentials(new AWSStaticCredentialsProvider(new BasicAWSCredentials(
        System.getenv("AWS_ACCESS_KEY_ID"), System.getenv("AWS_SECRET_ACCESS_KEY"))));
    builder.setPathStyleAccessEnabled(Boolean.TRUE);
    this.client = (AmazonS3) builder.build();
    this.uri = uri;
  }

  public Pair readCurrentLockFile() {
    try {
      S3Object found = client.getObject(bucket(uri), key(uri));
      try {
        String tag = found.getObjectMetadata().getETag();
        return Pair.of(LockGetResult.SUCCESS,
            Option.of(StorageLockFile.createFromStream(found.getObjectContent(), tag)));
      } finally {
        found.close();
      }
    } catch (AmazonS3Exception error) {
      return Pair.of(error.getStatusCode() == 404 ? LockGetResult.NOT_EXISTS
          : LockGetResult.UNKNOWN_ERROR, Option.empty());
    } catch (java.io.IOException error) {
      return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
    }
  }

  public Pair tryUpsertLockFile(StorageLockData wanted, Option previous) {
    PutObjectRequest request = request(uri, StorageLockFile.toByteArray(wanted));
    if (previous.isPresent()) {
      String tag = ((StorageLockFile) previous.get()).getVersionId();
      request.putCustomRequestHeader("If-Match", "\"" + tag + "\"");
    } else {
      request.putCustomRequestHeader("If-None-Match", "*");
    }
    try {
      String tag = client.putObject(request).getETag();
      return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(wanted, tag)));
    } catch (AmazonS3Exception error) {
      return Pair.of(error.getStatusCode() == 412 ? LockUpsertResult.ACQUIRED_BY_OTHERS
          : LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    }
  }

  public Option readObject(String uri, boolean mayBeMissing) {
    try {
      return Option.of(client.getObjectAsString(bucket(uri), key(uri)));
    } catch (AmazonS3Exception error) {
      return Option.empty();
    }
  }

  public boolean writeObject(String uri, String content) {
    client.putObject(bucket(uri), key(uri), content);
    return true;
  }

  public void close() {
    client.shutdown();
  }

  private static PutObjectRequest request(String uri, byte[] content) {
    ObjectMetadata metadata = new ObjectMetadata();
    metadata.setContentLength((long) content.length);
    return new PutObjectRequest(bucket(uri), key(uri), new ByteArrayInputStream(content), metadata);
  }

  private static String bucket(String uri) {
    return URI.create(uri).getHost();
  }

  private static String key(String uri) {
    return URI.create(uri).getPath().substring(1);
  }
}
